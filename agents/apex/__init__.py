"""Ape-X DQN: distributed prioritized experience replay (Horgan et al. 2018)."""
