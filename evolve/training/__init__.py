"""Fine-tuning the policy: from what the journal holds, or from fresh rollouts."""
