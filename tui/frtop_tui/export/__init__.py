"""What is left of a job: capture files and black boxes, written, read, and judged again."""
