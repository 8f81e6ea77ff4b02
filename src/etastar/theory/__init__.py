"""How does an optimizer's learning rate become an effective one? Formulas alone, in numpy.

`dynamics` closed forms at a constant LR · `schedules`, `recursion`, `coarse` any schedule ·
`planned` the mean η_eff of a planned run · `trajectories`, `calibrate`, `network`, `heldout` from
measured trunks · `invert` η_eff → η or λ · `regime`, `bend` diagnosis · `nodecay` λ = 0 ·
`validate` the appendix' figures.
"""
