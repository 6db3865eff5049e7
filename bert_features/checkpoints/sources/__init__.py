"""Where a checkpoint comes from: this machine, object stores, hubs."""
