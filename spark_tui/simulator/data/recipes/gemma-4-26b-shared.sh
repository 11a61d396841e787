#!/bin/sh
# A docker run command, to try the import of the demo with.
docker run -d --name gemma-4-26b-shared --gpus all -p 127.0.0.1:8004:8000 --shm-size 10g \
  -v "$HOME/vllm:/models" -e HF_HOME=/models vllm/vllm-openai:gemma4-cu130 \
  --model nvidia/Gemma-4-26B-A4B-NVFP4 --quantization modelopt --moe-backend marlin \
  --gpu-memory-utilization 0.3 --max-model-len 65536 --max-num-seqs 2
