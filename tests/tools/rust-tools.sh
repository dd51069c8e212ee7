#!/usr/bin/env bash
# Prints the folder with the prebuilt cargo tools.
. "$(dirname "$0")/lib.sh"
rust_tools
