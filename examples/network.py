"""Tries to reach the network and hides that it failed. The verdict says so all the same."""
import urllib.request

try:
    urllib.request.urlopen("http://example.com/", timeout=5)
except OSError:
    pass
