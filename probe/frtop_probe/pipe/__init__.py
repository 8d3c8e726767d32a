"""An agent at the far end of a command that opens a shell: `ssh HOST sh`, `docker exec -i C sh`.

Everything goes through the shell's standard input, and frtop writes nothing to a disk there:

1. `start_script`: a shell script that finds a Python, and runs `stage_zero` in it.
2. `packing`: the archive that `stage_zero` receives, a zip of the sources in `frtop_probe` that
   `agent` needs, of msgpack, and of `msgspec_standin` under the name of msgspec.
3. `agent` then serves the same requests as any other agent, through `lines` in both directions; or
   `doctor` examines that host once.

docs/reach.md is for people; `lines` has the words.
"""
