trl sft --config trl.yaml
