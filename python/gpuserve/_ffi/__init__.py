"""The C library through ctypes: its declarations, calls, arguments and texts. Private."""
