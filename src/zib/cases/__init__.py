"""Worked applications on real records."""
