#!/usr/bin/env bash
# Index a store by a Slurm array: each task scans its part of the shards, in any order, on any machine.
#
#   parts=$(sbatch --parsable scripts/slurm/index.sh STORE)
#   sbatch --dependency=afterok:$parts scripts/slurm/join.sh STORE
#
# A part leaves .curate/.index.parts/I-of-N.parquet in the store, which all machines must see. A task that was killed is
# done again by `scontrol requeue JOB_TASK`, or by hand: `curate index STORE --part 7/16`. More parts lose less by a kill.
#
#SBATCH --job-name=curate-index
#SBATCH --array=1-16
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
#SBATCH --time=02:00:00
set -euo pipefail

# --part alone is this task's place in the array. --check, if it is wanted, belongs here, not to the joining.
curate index "$1" --part --workers "${SLURM_CPUS_PER_TASK:-1}"
