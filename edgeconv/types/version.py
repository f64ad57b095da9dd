"""The version of edgeconv, which setuptools reads here."""

VERSION = "0.1.0"
