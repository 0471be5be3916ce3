"""Turns bracketed paste on, reads raw keys and keeps every byte: python3 pane_log.py FILE"""
import os
import sys
import tty

log = open(sys.argv[1], "ab", 0)
tty.setraw(0)
os.write(1, b"\x1b[?2004hready> ")
while True:
    got = os.read(0, 65536)
    if not got:
        break
    log.write(got)
