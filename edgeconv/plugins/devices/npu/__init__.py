"""What an NPU would compute of a file, by Arm's compiler Vela, which runs in a confined child."""
