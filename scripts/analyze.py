try:
    from minitf.commands.analyze import main
except ModuleNotFoundError as error:
    raise SystemExit(f"{error}: run `pip install -e .` in minitf's own folder first") from None

main()
