#!/bin/sh
# SPDX-License-Identifier: MIT
# All that the pkg-config files name moves with the prefix that a packager gives: --define-variable=prefix=/foo.
set -eu
folder=$1
fail() { echo "pc_moves: $1" >&2; exit 1; }
moved() { # file, what pkg-config is asked
  answer=$(${PKG_CONFIG:-pkg-config} --define-variable=prefix=/foo "$2" "$folder/$1.pc")
  case $answer in
    /foo/* | -[IL]/foo/*) ;;
    *) fail "$1: $2 is '$answer'" ;;
  esac
}
for variable in libdir includedir plugindir linkmap templatedir bsrun conformance; do
  moved blockshock-plugin --variable=$variable
done
moved blockshock-plugin --cflags-only-I
moved blockshock --cflags-only-I
moved blockshock --libs-only-L
