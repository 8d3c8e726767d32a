"""Agents at the other end of a command that gives a shell: ssh, docker, kubectl, srun."""
