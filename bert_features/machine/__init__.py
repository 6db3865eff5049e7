"""What is on this machine, found before TensorFlow or JAX is imported."""
