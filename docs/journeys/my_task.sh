# A task of my own: train, several seeds at once, analyse, one page.
kreiss train my_task:Before --model nnrnn --hidden 8 --task.back 3 --lr 0.01 --steps 60 --seeds 2 --out RUNS
kreiss analyze RUNS/seed-0 --task my_task:Before --out PAGE
kreiss report RUNS --output report.html
