# A task of my own: two seeds side by side, the analysis of one of them (without `gradients`, all of it), a report.
kreiss train my_task:Before --model nnrnn --hidden 8 --task.back 3 --lr 0.01 --steps 60 --seeds 2 --out RUNS
kreiss analyze RUNS/seed-0 gradients --task my_task:Before --out PAGE
kreiss report RUNS --output report.html
