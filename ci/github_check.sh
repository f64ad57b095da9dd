# Runs `edgeconv check` for action.yml and keeps its exit code, so that the comment is still made.
# In: CONFIG, FURTHER (arguments), VERDICTS (a directory). Out: outputs of the step, and the files.
set -euo pipefail

rm -rf "$VERDICTS"
mkdir -p "$VERDICTS"
arguments=(
  # A pull request brings models and data; FURTHER may say otherwise.
  --sandbox required
  --output "text=$VERDICTS/edgeconv.txt"
  --output "json=$VERDICTS/verdict.json"
  --output "junit=$VERDICTS/junit.xml"
  --output "sarif=$VERDICTS/edgeconv.sarif"
  --output "github-comment=$VERDICTS/comment.md"
)
if [ -n "${CONFIG:-}" ]; then
  arguments+=(--config "$CONFIG")
fi
read -r -a further <<< "${FURTHER:-}"

code=0
edgeconv check "${arguments[@]}" ${further[@]+"${further[@]}"} || code=$?

case "$code" in
  0) verdict=pass ;;
  1) verdict=fail ;;
  *) verdict=error ;;
esac
{
  echo "verdict=$verdict"
  echo "exit-code=$code"
  echo "directory=$VERDICTS"
} >> "$GITHUB_OUTPUT"
