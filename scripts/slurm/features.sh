#!/usr/bin/env bash
# Compute features, and the hashes that `curate dedup` compares, by a Slurm array over a store that has its index.
#
#   sbatch scripts/slurm/features.sh STORE
#
# Each shard's features and hashes are a file of their own beside the shards, and what is there is not made again: the
# same command goes on after a kill, and nothing is to be joined. Whatever uses them afterwards finds them:
# `curate run --store STORE --method classifier`, `curate dedup STORE --out copies`.
#
#SBATCH --job-name=curate-features
#SBATCH --array=1-16
#SBATCH --cpus-per-task=4
#SBATCH --mem=8G
#SBATCH --time=08:00:00
# With a card for each task (then without the line of threads below):
##SBATCH --gres=gpu:1
set -euo pipefail

# The same number of threads everywhere: sums are taken in the same order.
export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"
curate features "$1" --part --workers "${SLURM_CPUS_PER_TASK:-1}"

# Where duplicates are looked for, too; --out as the later `curate dedup` has it, for a store that may not be written to.
curate dedup "$1" --part --out "${2:-copies}" --workers "${SLURM_CPUS_PER_TASK:-1}"
