# Targets for a Makefile: `include edgeconv.mk`, then
#   make edgeconv-check     convert, measure and judge what changed
#   make edgeconv-update    accept the models as they are: write edgeconv.lock
# Each variable can be set before the include, or on the command line.

EDGECONV ?= edgeconv
EDGECONV_CONFIG ?= edgeconv.toml
EDGECONV_ARGUMENTS ?=
EDGECONV_VERDICTS ?= build/edgeconv

.PHONY: edgeconv-check edgeconv-update

edgeconv-check:
	$(EDGECONV) check --config "$(EDGECONV_CONFIG)" \
		--output "json=$(EDGECONV_VERDICTS)/verdict.json" \
		--output "junit=$(EDGECONV_VERDICTS)/junit.xml" \
		$(EDGECONV_ARGUMENTS)

edgeconv-update:
	$(EDGECONV) check --update --config "$(EDGECONV_CONFIG)" $(EDGECONV_ARGUMENTS)
