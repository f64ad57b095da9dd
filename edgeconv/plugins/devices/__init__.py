"""Runtimes on other devices and in other programs, and compilers for NPUs."""
