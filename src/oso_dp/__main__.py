from oso_dp.cli import main

main()
