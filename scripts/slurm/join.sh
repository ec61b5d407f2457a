#!/usr/bin/env bash
# Join the parts that scripts/slurm/index.sh has made: the index is the same as if one machine had made it.
#
# A part that is missing, damaged or of other shards is one line, which names it; nothing is written then.
#
#SBATCH --job-name=curate-join
#SBATCH --cpus-per-task=1
#SBATCH --mem=8G
#SBATCH --time=01:00:00
set -euo pipefail

curate index "$1" --join
