from frtop_probe import wire
def main(archive, rest=b""):
    import sys
    print("frtop-hello {}", archive, rest, wire.__file__)
