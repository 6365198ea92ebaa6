"""The smallest thing worth verifying."""

print("hello from inside")
