from oso.cli import main

main()
