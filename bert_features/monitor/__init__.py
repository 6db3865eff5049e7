"""What a run reports about itself while it lasts: stage times, queues, shards. No framework."""
