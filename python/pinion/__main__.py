"""The parts of the command `pinion` that are written in Python: python3 DIRECTORY PART [ARGUMENT...], as cli/python_part.cpp starts
them. They run on any Python from 3.6 on."""
import importlib
import os
import signal
import sys

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    # Modules of the program's own directory would come first.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.exit(importlib.import_module("pinion." + sys.argv[1]).main(*sys.argv[2:]))
