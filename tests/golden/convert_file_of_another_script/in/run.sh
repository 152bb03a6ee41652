#!/bin/bash
mkdir -p deepspeed_configs
cat > deepspeed_configs/zero3.json << 'EOF'
{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": true}}
EOF
accelerate launch --num_processes 4 -m axolotl.cli.train axolotl.yaml
