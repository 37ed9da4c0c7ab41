# My model against three others, three seeds each, at equal numbers of parameters: a table, a figure, a page.
kreiss train copy --model my_model:Leaky --hidden 8 --model.leak 0.9 --task.delay 3 --steps 10 --out RUN
kreiss eval RUN --trust my_model
kreiss compare copy --models my_model:Leaky,nnrnn,exprnn,lstm --seeds 3 --equal parameters --hidden 8 --task.delay 3 --task.valid-sequences 20 --task.test-sequences 20 --steps 10 --out COMPARISON
kreiss report COMPARISON RUN --output report.html
