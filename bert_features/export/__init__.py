"""SavedModels that need nothing of this package."""
