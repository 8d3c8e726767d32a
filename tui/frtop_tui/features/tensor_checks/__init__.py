"""What ranks say of the values in their tensors, compared across ranks. Pure."""
