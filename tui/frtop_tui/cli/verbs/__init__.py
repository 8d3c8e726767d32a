"""The options of the verbs, a module per family; what they do is imported when they run."""
