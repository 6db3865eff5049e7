"""The probe: what a linear classifier reads from each layer, beside controls and baselines."""
