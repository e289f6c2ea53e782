"""Augmented random search (Mania et al. 2018)."""
