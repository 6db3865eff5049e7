"""The service: `serve`, its HTTP interface and its client."""
