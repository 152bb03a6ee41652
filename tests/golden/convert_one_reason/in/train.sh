python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files=train.parquet data.val_files=val.parquet \
  data.train_batch_size=64 data.max_prompt_length=512 data.max_response_length=1024 actor_rollout_ref.model.path=a/b \
  actor_rollout_ref.actor.optim.lr=1e-6 actor_rollout_ref.rollout.name=vllm trainer.n_gpus_per_node=8
