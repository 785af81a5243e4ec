#!/usr/bin/env bash
# Other libraries that hook memory events hear as much beside Pinion as without it, and Pinion hears all: the
# matrix of hookers, events and orders of loading, by bytes that a device reads.
exec "$(dirname "$0")/../monitor/hooker_matrix" "$1"
