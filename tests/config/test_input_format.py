"""InputFormat: settings that contradict each other."""
