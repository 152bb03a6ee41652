#!/bin/bash
STAGE=2
cat <<JSON > ./ds.json
{
  "zero_optimization": {"stage": $STAGE},
  "bf16": {"enabled": true},
  "gradient_clipping": 0.5
}
JSON
deepspeed --num_gpus 4 run_clm.py --model_name_or_path my/model --output_dir out --max_steps 50 --bf16 --deepspeed ds.json
