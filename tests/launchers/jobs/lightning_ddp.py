"""Lightning starts rank 1 by itself, which reads FOLDER/shard, a pipe, before step 20."""

import sys
import time
from pathlib import Path

import lightning
import torch
from torch.utils.data import DataLoader


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def training_step(self, batch, step):
        if step == 20 and self.global_rank == 1:
            Path(sys.argv[1], "shard").read_bytes()
        time.sleep(0.05)
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(Model(), DataLoader(torch.ones(40_000, 8), batch_size=4))
