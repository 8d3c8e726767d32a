"""Programs that ranks run, each as `python -m gpu_kit.programs.NAME`."""
