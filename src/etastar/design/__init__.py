"""Which plan should be carried out, and how may it change while it runs? Simulation, search, the adaptive rule."""
