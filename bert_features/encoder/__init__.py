"""The encoder: the model, the forms of its operations, pooling and the device step."""
