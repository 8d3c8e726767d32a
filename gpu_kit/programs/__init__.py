"""What ranks run: programs, each started as `python -m gpu_kit.programs.NAME`."""
