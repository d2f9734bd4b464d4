"""The stages that train on given examples: SFT, DPO and its kin, the reward model."""
