"""Kinds of knowledge, one file or folder each: what a record of the kind holds, and what of it is read.

A file sets `MEMBER`, its payload class, and `EXAMPLE`, one of these.
"""
